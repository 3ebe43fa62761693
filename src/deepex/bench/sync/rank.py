"""The program of one rank of the sync benchmark: `python -m deepex.bench.sync.rank SPEC`, with SPEC in JSON.

It connects to the socket that SPEC names and says its rank when it is ready. Then it carries out commands, a line
each, and answers them. Between commands it sleeps.
"""

import json
import socket
import sys
from typing import Any

from deepex.bench.sync.parts import open_part
from deepex.launch.rank import leave


def main() -> None:
    """Serve until told to end; an error ends the process, and the pool reads it from its output."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(spec.pop("control"))
        lines = control.makefile("rw")
        with open_part(**spec) as (rank, commands):
            answer: dict[str, Any] = {"rank": rank}
            while True:
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
                command = json.loads(lines.readline() or '{"do": "end"}')
                do = command.pop("do")
                if do == "end":
                    break
                answer = commands[do](**command)
    leave(0)


if __name__ == "__main__":
    main()
