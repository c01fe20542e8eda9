# Load: a pool of four processes that inherit a table of 400,000 rows, read it, and are replaced
# after four tasks.
import multiprocessing

rows = {row: str(row) * 3 for row in range(400_000)}


def task(n):
    return sum(len(rows[row % len(rows)]) for row in range(n * 1000, n * 1000 + 20_000))


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(4, maxtasksperchild=4) as pool:
        assert sum(pool.map(task, range(64), chunksize=1)) > 0
