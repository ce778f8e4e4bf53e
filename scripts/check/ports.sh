# Ports on loopback for the programs that a script starts. Other scripts source this file.
# shellcheck shell=bash disable=SC2034

# Holds COUNT ports until the script ends, and puts their numbers into the array `held`: `hold_ports COUNT`. Nobody listens on them, and
# the system gives them to nobody else. A listener that sets SO_REUSEADDR may still bind them, as brokers and our programs do.
hold_ports() {
    coproc HOLDER {
        exec python3 -c '
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in sockets:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets), flush=True)
sys.stdin.read()' "$1"
    }
    read -r -a held <&"${HOLDER[0]}"
}

# Waits, at most a minute, until a process listens on a port: `await_listener PORT PID`.
await_listener() {
    local _
    for _ in {1..600}; do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        kill -0 "$2" 2>/dev/null || { echo "the process that should listen on port $1 has ended" >&2; return 1; }
        sleep 0.1
    done
    echo "nobody listens on port $1 after a minute" >&2
    return 1
}
