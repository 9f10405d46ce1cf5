"""A process that appends batches until it is killed, and says which ones were acknowledged."""

import random
import sys

from em.log.event import Draft
from em.store import Commit, open_store

if __name__ == "__main__":
    address, name, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
    chance = random.Random(name)
    with open_store(address) as store:
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
