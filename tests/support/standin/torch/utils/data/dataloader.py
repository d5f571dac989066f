"""A loader without workers, iterated as torch's are."""


class _BaseDataLoaderIter:
    """Hands out one batch after the other."""

    def __init__(self, loader):
        self._dataset = loader.dataset
        self._rest = iter(loader.dataset)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._rest)


class DataLoader:
    """Iterates over a dataset."""

    num_workers = 0

    def __init__(self, dataset, batch_size=1):
        self.dataset, self.batch_size = dataset, batch_size

    def __iter__(self):
        return _BaseDataLoaderIter(self)
