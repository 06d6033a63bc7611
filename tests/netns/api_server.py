#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""An API server as podlane-k8s meets it, good and bad: api_server.py PORT_FILE LOG CERTIFICATE KEY CA

The name of the pod or node says how it answers; a node's ranges can be in the file PORT_FILE.ranges, as JSON. Each
request is a line in LOG: method, path, Accept, Authorization, and the common name in the client's certificate.
"""
import http.server
import json
import os
import ssl
import sys

PORT_FILE, LOG, CERTIFICATE, KEY, CA = sys.argv[1:]
STATUS = {"unauthorized": 401, "forbidden": 403, "missing": 404, "broken": 500, "moved": 302}


def metadata(name):
    return {
        "name": name,
        "uid": "uid-of-" + name,
        "labels": {"app": "web", "bad\nkey": "x", "escape": "\033[2J"},
        "annotations": {
            "team": "blue",
            "podlane/mtu": "1280",
            "kubernetes.io/config.hash": "hash-of-" + name,
        },
    }


def namespace(name):
    return {
        "name": name,
        "labels": {"tenant": "a", "app": "not the pod's"},
        "annotations": {"team": "green", "podlane/mtu": "1300", "podlane/pools": "none-such"},
    }


def spec(name):
    """Of a node."""
    try:
        with open(PORT_FILE + ".ranges", encoding="utf-8") as ranges:
            return {"podCIDRs": json.load(ranges)}
    except FileNotFoundError:
        pass
    return {
        "none": {"taints": []},
        "everything": {"podCIDRs": ["0.0.0.0/0"]},
        "everything6": {"podCIDRs": ["::/0"]},
        "host-bits": {"podCIDRs": ["198.18.40.1/24"]},
        "loopback": {"podCIDRs": ["127.0.0.0/8"]},
        "one-address": {"podCIDR": "198.18.40.1/32"},
        "twice": {"podCIDRs": ["198.18.40.0/24", "198.18.41.0/24"]},
        "numbers": {"podCIDRs": [7]},
        "many": {"podCIDRs": ["198.18.40.0/24"] * 20000},
        "ipv6-only": {"podCIDRs": ["2001:db8:40::/64"]},
        "old": {"podCIDR": "198.18.44.0/24"},
    }.get(name, {"podCIDR": "198.18.40.0/24", "podCIDRs": ["198.18.40.0/24", "2001:db8:40::/64"]})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body, length=None):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if status == 302:
            self.send_header("Location", self.path.replace("moved", "web-0"))
        self.end_headers()
        self.wfile.write(body)

    def misbehave(self, name):
        if name == "slow":
            self.rfile.read(1)  # until the client goes
        elif name == "garbage":
            self.send(200, b"\xff\x00{]")
        elif name == "nothing":
            self.send(200, b"{}")
        elif name == "list":
            self.send(200, b"[1]")
        elif name == "cut":
            self.send(200, b"{", 100)
            self.close_connection = True
        elif name == "huge":
            try:
                self.send(200, b"[" + b" " * (2 << 20))
            except OSError:
                pass
        elif name == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b" ")
                    self.connection.settimeout(0.1)
                    try:
                        if not self.connection.recv(1):
                            break
                    except TimeoutError:
                        pass
            except OSError:
                pass
        else:
            return False
        return True

    def do_GET(self):
        subject = (self.connection.getpeercert() or {}).get("subject", ())
        common_name = [value for part in subject for key, value in part if key == "commonName"]
        headers = [self.headers.get("Accept", "-"), self.headers.get("Authorization", "-")]
        with open(LOG, "a", encoding="utf-8") as log:
            log.write("\t".join([self.command, self.path] + headers + (common_name or ["-"])) + "\n")
        parts = self.path.split("/")[1:]
        name = parts[-1]
        if self.misbehave(name):
            return
        if name in STATUS:
            self.send(STATUS[name], json.dumps({"kind": "Status", "message": "secret-of-server"}).encode())
        else:
            about = namespace(name) if len(parts) == 4 and parts[2] == "namespaces" else metadata(name)
            answer = {"kind": "PartialObjectMetadata", "metadata": about}
            if "PartialObjectMetadata" not in headers[0]:
                answer = {"kind": "Node", "metadata": about, "spec": spec(name)}
            self.send(200, json.dumps(answer).encode())


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def main():
    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    context.load_verify_locations(CA)
    context.verify_mode = ssl.CERT_OPTIONAL
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with open(PORT_FILE + ".new", "w", encoding="utf-8") as port:
        port.write(str(server.server_address[1]))
    os.rename(PORT_FILE + ".new", PORT_FILE)
    server.serve_forever()


main()
