"""A server for a file that `bayesdiv export` wrote: python examples/serve.py model.onnx 8000."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
inputs, names = session.get_inputs()[0], [one.name for one in session.get_outputs()]
dtype = {"tensor(double)": np.float64, "tensor(float)": np.float32}[inputs.type]


class Answer(BaseHTTPRequestHandler):
    """Rows in, as a list of lists; every output of the file by name out."""

    def do_POST(self) -> None:
        """Answer one request."""
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = session.run(names, {inputs.name: np.asarray(rows, dtype)})
        self.send_response(200)
        self.end_headers()
        answer = {name: value.tolist() for name, value in zip(names, found, strict=True)}
        self.wfile.write(json.dumps(answer).encode())


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Answer).serve_forever()
