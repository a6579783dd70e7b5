"""Loading data ahead of training. Needs no framework.

class Loader(AsyncDataLoaderMixin, MyLoader):  # MyLoader: a BaseDataLoader
    pass

for batch in Loader(async_loader_queue_size=8, ...):
    ...
"""

from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]
