"""Connections that are kept busy: `echo.py serve PORT`, or `echo.py call HOST PORT COUNT`.

The caller sends a byte on every connection, again and again, and waits for each to come back. It prints its
local ports; when its standard input ends it closes all and prints the longest wait of each in seconds.
"""

import json
import selectors
import socket
import sys
import time


def serve(port: int) -> None:
    ready = selectors.DefaultSelector()
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    ready.register(listener, selectors.EVENT_READ)
    print("listening", flush=True)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            data = key.fileobj.recv(100)
            if data:
                key.fileobj.send(data)
            else:
                ready.unregister(key.fileobj)
                key.fileobj.close()


def call(host: str, port: int, count: int) -> None:
    ready = selectors.DefaultSelector()
    ready.register(sys.stdin, selectors.EVENT_READ)
    calls = [socket.create_connection((host, port), 20) for _ in range(count)]
    longest = dict.fromkeys(calls, 0.0)
    sent = {}
    for one in calls:
        ready.register(one, selectors.EVENT_READ)
        one.send(b"x")
        sent[one] = time.monotonic()
    print(json.dumps([one.getsockname()[1] for one in calls]), flush=True)
    while True:
        now = time.monotonic()
        for key, _ in ready.select():
            if key.fileobj is sys.stdin:
                longest = {one: max(wait, now - sent[one]) for one, wait in longest.items()}
                for one in calls:
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(100):
                        pass
                    one.close()
                print(json.dumps([longest[one] for one in calls]), flush=True)
                return
            key.fileobj.recv(100)
            longest[key.fileobj] = max(longest[key.fileobj], time.monotonic() - sent[key.fileobj])
            key.fileobj.send(b"x")
            sent[key.fileobj] = time.monotonic()
        time.sleep(0.02)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        call(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
