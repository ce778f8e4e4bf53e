# Installs Open MPI and builds headwater-train with it, as the path `trainer`. Other scripts source this file.
# shellcheck shell=bash disable=SC2034
scripts/install/mpi
cargo build --release --locked --quiet -p headwater-train --features mpi,experiments
mkdir -p target/mpi
# Builds without MPI write target/release/headwater-train too.
cp --remove-destination target/release/headwater-train target/mpi/headwater-train
trainer=$PWD/target/mpi/headwater-train
# Open MPI must be told that it may run as root, as in containers.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
