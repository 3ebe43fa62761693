"""The program of one rank of the sync benchmark: `python -m deepex.bench.sync.rank SPEC`, with SPEC in JSON.

It connects to the socket that SPEC names, says its rank when it is ready, and then carries out orders, a line each, and
answers them. Between orders it sleeps.
"""

import json
import socket
import sys
from typing import Any

from deepex.bench.sync.parts import open_part
from deepex.launch.rank import leave


def main() -> None:
    """Serve until told to end; an error ends the process, and the crew reads it from its output."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(spec.pop("control"))
        lines = control.makefile("rw")
        with open_part(**spec) as (rank, orders):
            answer: dict[str, Any] = {"rank": rank}
            while True:
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
                order = json.loads(lines.readline() or '{"do": "end"}')
                do = order.pop("do")
                if do == "end":
                    break
                answer = orders[do](**order)
    leave(0)


if __name__ == "__main__":
    main()
