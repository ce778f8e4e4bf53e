# Ports on loopback, and a broker, for the programs that a script starts. Other scripts source this file.
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

# Writes Mosquitto's shipped configuration for a port of this machine: `write_mosquitto_conf FILE PORT`.
write_mosquitto_conf() {
    sed "s/^listener .*/listener $2 127.0.0.1/" deploy/mosquitto.conf >"$1"
    echo "persistence_location ${1%/*}/" >>"$1"
}

# Starts Mosquitto and waits until it listens: `start_mosquitto FILE PORT`. `mosquitto` is its process id.
start_mosquitto() {
    # Started as root, Mosquitto would change to a user who may not read the keys.
    echo "user root" >>"$1"
    "$(command -v mosquitto || echo /usr/sbin/mosquitto)" -c "$1" >"${1%.conf}.log" 2>&1 &
    mosquitto=$!
    await_listener "$2" "$mosquitto" || { kill "$mosquitto" 2>/dev/null; return 1; }
}

# Enrolls a site for the demo, whose broker listens on PORT: `enroll_demo HEADWATER FOLDER PORT`.
enroll_demo() {
    "$1" enroll --dir "$2" init --site demo --host localhost --listen 127.0.0.1 --port "$3" >/dev/null
    "$1" enroll --dir "$2" add cloud --host localhost >/dev/null
    "$1" enroll --dir "$2" add device --group cameras cam-{0..5} >/dev/null
    "$1" enroll --dir "$2" add leader --group cameras >/dev/null
    "$1" enroll --dir "$2" add operator --group cameras operator >/dev/null
}
