"""Folders whose sessions em must not record: by `.emignore`, or `record: false` in em.yaml."""

from pathlib import Path

from em.errors import EmError
from em.settings import Settings

IGNORE = ".emignore"


def is_left_alone(folder: Path) -> bool:
    """Return whether a folder, or one that it is in, says that em must not record there.

    It says so with a file `.emignore`, or with `record: false` in em.yaml. An em.yaml that can't be
    read may say so too.
    """
    for place in (folder, *folder.parents):
        try:
            if (place / IGNORE).exists() or not Settings.load(place, {}, tells=False).record:
                return True
        except (EmError, OSError):
            return True
    return False
