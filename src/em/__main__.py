"""`python -m em` is the `em` command."""

from em.cli import main

if __name__ == "__main__":  # the processes of `em serve --workers` load this module, too
    main()
