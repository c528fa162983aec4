"""`python -m catchment`."""

import sys

from catchment.cli import main

sys.exit(main())
