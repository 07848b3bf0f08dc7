#!/bin/bash
# One Ray cluster on the nodes of a Slurm job, and one sweep on it; see docs/cluster.md.
#   sbatch --nodes=4 --cpus-per-task=16 --time=12:00:00 docs/slurm.sh fit pairwise_max:D=4,d=4 "heads=4,4 embed=24" \
#       -T 16 --seeds 1000 --store "$HOME/sweeps/pairs" --seconds 42000
# The words behind the script are those of `infoflow`, without --engine and --address. The store must lie where every
# node sees it. With --seconds a little below --time the job ends by itself; the same call goes on where it stopped.
#SBATCH --job-name=infoflow
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:TERM@120
set -euo pipefail

port=$((20000 + ${SLURM_JOB_ID:?run this with sbatch} % 20000)) # jobs that share a node do not share a port
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
start="--num-cpus=${SLURM_CPUS_PER_TASK:-1} --disable-usage-stats --block"

# The cluster obeys nobody without the token; all nodes find it in the shared home folder.
export RAY_AUTH_MODE=token
[ -f "$HOME/.ray/auth_token" ] || ray get-auth-token --generate > /dev/null

srun --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --node-ip-address="$head" --port="$port" --ray-client-server-port=$((port + 20000)) \
  --include-dashboard=false $start &
until ray status --address "$head:$port" > /dev/null 2>&1; do sleep 2; done
if ((${#nodes[@]} > 1)); then
  srun --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --exclude="$head" \
    ray start --address="$head:$port" $start &
fi

# In the background, so that the signal before the end of the job reaches it: it saves its state and stops.
infoflow "$@" --engine ray --address "$head:$port" &
sweep=$!
trap 'kill -TERM "$sweep"' TERM
wait "$sweep" || status=$?
exit "${status:-0}" # with the job's first shell all its steps end
