# The cargo that builds what is handed out, as the array `cargo`; other scripts source this file. With AUDITABLE=yes the program itself has the
# list of its crates too, which `cargo audit bin` and scanners of images read.
# shellcheck shell=bash disable=SC2034
cargo=(cargo)
if [ "${AUDITABLE:-no}" = yes ]; then
    scripts/install/auditable
    cargo=(cargo auditable)
fi
