"""The tensor-parallel lab: one model's matrices split over ranks, by columns, and in column-row pairs."""
