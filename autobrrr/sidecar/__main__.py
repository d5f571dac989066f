"""`python -m autobrrr.sidecar PID ORDER`: the background process of one job; started by the client."""

import sys

from autobrrr.sidecar.process.daemonize import main

sys.exit(main())
