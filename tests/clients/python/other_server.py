"""A server of MongoDB's protocol that knows no command but `hello`."""
import contextlib
import socketserver
import struct
import threading

import bson

_HELLO = {"ok": 1, "isWritablePrimary": True, "ismaster": True, "minWireVersion": 0, "helloOk": True,
          "maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000, "maxWriteBatchSize": 100000}


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            head = self.rfile.read(16)
            if len(head) < 16:
                return
            length, number, _, op = struct.unpack("<4i", head)
            body = self.rfile.read(length - 16)
            start = body.index(b"\0", 4) + 9 if op == 2004 else 5  # OP_QUERY, or OP_MSG
            asked = bson.decode(body[start:start + struct.unpack_from("<i", body, start)[0]])
            name = next(iter(asked))
            known = name in ("hello", "ismaster", "isMaster")
            hello = {**_HELLO, "maxWireVersion": self.server.wire_version}
            reply = bson.encode(hello if known else {"ok": 0, "code": 59, "errmsg": f"no such command: '{name}'"})
            said = struct.pack("<iqii", 0, 0, 0, 1) if op == 2004 else struct.pack("<iB", 0, 0)
            kind = 1 if op == 2004 else 2013
            self.wfile.write(struct.pack("<4i", 16 + len(said) + len(reply), 1, number, kind) + said + reply)


@contextlib.contextmanager
def other_server(wire_version=21):
    """Yields the URI of the server."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.wire_version = wire_version
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"mongodb://127.0.0.1:{server.server_address[1]}/x?directConnection=true"
        server.shutdown()
