"""A process that appends batches until it is killed, and says which ones were acknowledged."""

import random
import sys
from threading import Thread

from em.log.event import Draft
from em.store import Commit, Store, open_store


def work(store: Store, name: str, batches: int) -> None:
    chance = random.Random(name)
    for batch in range(batches):
        size = chance.randint(1, 60)
        store.commit(
            Commit(
                events=[
                    Draft(
                        stream="shared" if n % 2 else name,
                        kind="step",
                        body={"by": name, "batch": batch, "of": size, "pad": "x" * n * 20},
                    )
                    for n in range(size)
                ]
            )
        )
        print(batch, flush=True)


if __name__ == "__main__":
    address, name, batches, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    with open_store(address) as store:
        if threads == 1:
            work(store, name, batches)
        else:
            workers = [
                Thread(target=work, args=(store, f"{name}.{n}", batches)) for n in range(threads)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
