"""What everybody in the graph is to know from the beginning: which day it is."""

import json
import time

print(json.dumps({"today": time.strftime("%Y-%m-%d")}))
