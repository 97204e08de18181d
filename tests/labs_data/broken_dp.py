"""More ways to break data parallelism, one mistake each; a rank calls one before it runs the lab."""

from __future__ import annotations

from contextlib import nullcontext

from torch import Tensor

from labs import sharded_data
from labs.data_parallel import training
from labs.language_model import LanguageModel
from labs.parallel.bucketed import Bucket, BucketedDataParallel
from labs.parallel.ddp_twin import DistributedTwin


def no_set_epoch() -> None:
    """Nobody tells the sampler which epoch it is."""
    vars(sharded_data)["DistributedSampler"].set_epoch = lambda self, epoch: None


def everyone_is_rank_0() -> None:
    """All ranks are dealt the first rank's examples."""
    right = sharded_data.rank_loader
    vars(sharded_data)["rank_loader"] = lambda examples, rank, *others: right(examples, 0, *others)


def one_bucket_unwaited() -> None:
    """The last bucket is given back as this rank filled it, which is what not waiting would give at worst."""
    pack, finish = Bucket.pack, BucketedDataParallel.finish
    filled: dict[int, Tensor] = {}

    def remember(self: Bucket, scale: float) -> None:
        pack(self, scale)
        filled[id(self)] = self.buffer.clone()

    def too_early(self: BucketedDataParallel) -> None:
        bucket = self.buckets[-1]
        finish(self)
        bucket.buffer.copy_(filled[id(bucket)])

    Bucket.pack = remember  # type: ignore[method-assign]
    BucketedDataParallel.finish = too_early  # type: ignore[method-assign]


def undivided() -> None:
    """Buckets hold sums."""
    BucketedDataParallel._scale = 1.0  # type: ignore[method-assign,assignment]


def all_at_the_end() -> None:
    """No bucket starts before backward is over."""
    launch = BucketedDataParallel._launch_ready

    def finish(self: BucketedDataParallel, right: object = BucketedDataParallel.finish) -> None:
        self._launch_ready = launch.__get__(self)  # type: ignore[method-assign]
        right(self)  # type: ignore[operator]
        del self._launch_ready

    BucketedDataParallel._launch_ready = lambda self: None  # type: ignore[method-assign]
    BucketedDataParallel.finish = finish  # type: ignore[method-assign]


def syncs_each_batch() -> None:
    """DDP averages after every accumulated batch."""
    DistributedTwin.no_sync = lambda self: nullcontext()  # type: ignore[method-assign]


def no_autocast() -> None:
    """Forward runs in fp32, whatever was asked."""
    vars(training)["autocast"] = lambda device, precision: nullcontext()


def large_weights() -> None:
    """The language model's weights are ten times too large."""
    right = LanguageModel._initialise

    def initialise(self: LanguageModel) -> None:
        right(self)
        for parameter in self.parameters():
            parameter.data *= 10

    LanguageModel._initialise = initialise  # type: ignore[method-assign]


def all_batches_weigh_whole() -> None:
    """The gradients of accumulated batches are added, not averaged."""
    right = training.one_batch

    def one_batch(ctx, params, subject, replica, scaler, batch, last, journal):  # type: ignore[no-untyped-def]
        class Louder:
            def backward(self, loss) -> None:  # type: ignore[no-untyped-def]
                scaler.backward(loss * params.accumulate)

        return right(ctx, params, subject, replica, Louder(), batch, last, journal)  # type: ignore[arg-type]

    vars(training)["one_batch"] = one_batch
