"""The 3D lab: data, pipeline and tensor parallelism at once, on a mesh of three axes."""
