"""data_arrow.py FILE: seconds of the processor in which pyarrow reads a Parquet file to arrays of
NumPy, by one thread: of the first round, and the median of five later ones."""
import sys
import time

import pyarrow
import pyarrow.parquet

pyarrow.set_cpu_count(1)
pyarrow.set_io_thread_count(1)


def read(path):
    begin = time.process_time()
    table = pyarrow.parquet.ParquetFile(path).read(use_threads=False)
    arrays = [column.to_numpy() for column in table.columns]
    assert len({len(a) for a in arrays}) == 1
    return time.process_time() - begin


rounds = [read(sys.argv[1]) for _ in range(6)]
print(rounds[0], sorted(rounds[1:])[2])
