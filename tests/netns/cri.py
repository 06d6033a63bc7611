#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Speaks CRI with a container runtime, as the kubelet does:

  cri.py SOCKET update PODCIDRS                     UpdateRuntimeConfig
  cri.py SOCKET run NAMESPACE NAME UID ANNOTATIONS  RunPodSandbox; ANNOTATIONS is a JSON object. Prints the sandbox's ID
  cri.py SOCKET addresses ID                        of PodSandboxStatus, one a line
  cri.py SOCKET remove ID                           StopPodSandbox, RemovePodSandbox
  cri.py image FILE PROGRAM                         writes an image whose one process is PROGRAM sleep, for `ctr import`

Messages are encoded here: Debian has gRPC, and no definitions of CRI.
"""
import hashlib
import io
import json
import sys
import tarfile

PAUSE = "registry.k8s.io/pause:3.6"


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message):
    """Pairs of number and value."""
    at = 0

    def read():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = read()
        value = read()
        if key & 7 == 2:
            at += value
            value = message[at - value : at]
        yield key >> 3, value


def first(message, number):
    return next((value for key, value in fields(message) if key == number), b"")


class Runtime:
    def __init__(self, socket):
        import grpc

        self.error = grpc.RpcError
        self.channel = grpc.insecure_channel("unix://" + socket)

    def call(self, method, request):
        function = self.channel.unary_unary(
            "/runtime.v1.RuntimeService/" + method,
            request_serializer=bytes,
            response_deserializer=bytes,
        )
        return function(request, timeout=60, wait_for_ready=True)

    def update(self, cidrs):
        self.call("UpdateRuntimeConfig", field(1, field(1, field(1, cidrs))))

    def run(self, namespace, name, uid, annotations):
        metadata = field(1, name) + field(2, uid) + field(3, namespace)
        config = field(1, metadata) + field(8, b"")
        for key, value in json.loads(annotations).items():
            config += field(7, field(1, key) + field(2, value))
        print(first(self.call("RunPodSandbox", field(1, config)), 1).decode())

    def addresses(self, sandbox):
        status = first(self.call("PodSandboxStatus", field(1, sandbox)), 1)
        network = first(status, 5)
        print(first(network, 1).decode())
        for number, value in fields(network):
            if number == 2:
                print(first(value, 1).decode())

    def remove(self, sandbox):
        self.call("StopPodSandbox", field(1, sandbox))
        self.call("RemovePodSandbox", field(1, sandbox))


def write_image(file, program):
    def digest(data):
        return "sha256:" + hashlib.sha256(data).hexdigest()

    def descriptor(data, kind, **more):
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": digest(data), "size": len(data), **more}

    def add(archive, name, data, mode=0o644):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), mode
        archive.addfile(entry, io.BytesIO(data))

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive, open(program, "rb") as binary:
        add(archive, "busybox", binary.read(), 0o755)
    layer = buffer.getvalue()
    process = {"Entrypoint": ["/busybox", "sleep", "86400"]}
    root = {"type": "layers", "diff_ids": [digest(layer)]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": process, "rootfs": root}).encode()
    layers = [descriptor(layer, "layer.v1.tar")]
    head = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
    manifest = json.dumps({**head, "config": descriptor(config, "config.v1+json"), "layers": layers}).encode()
    named = descriptor(manifest, "manifest.v1+json", annotations={"io.containerd.image.name": PAUSE})
    with tarfile.open(file, "w") as archive:
        add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}).encode())
        for data in (layer, config, manifest):
            add(archive, "blobs/sha256/" + digest(data)[7:], data)


def main():
    if sys.argv[1] == "image":
        write_image(*sys.argv[2:])
        return
    runtime = Runtime(sys.argv[1])
    try:
        getattr(runtime, sys.argv[2])(*sys.argv[3:])
    except runtime.error as error:
        sys.exit(error.details())


main()
