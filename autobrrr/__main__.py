"""`python -m autobrrr` is the console script."""

import sys

from autobrrr.cli import main

sys.exit(main())
