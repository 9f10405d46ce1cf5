"""`python -m em` is the `em` command."""

from em.cli import main

main()
