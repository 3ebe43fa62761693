"""A machine with nothing to warn of, for tests to change."""

import pytest

from deepex.doctor.machine import (
    AllReduceTime,
    CopyRate,
    FabricCheck,
    FolderSpeed,
    GemmRate,
    Machine,
    Memory,
    MpiProgram,
    Processor,
    Scheduler,
    Software,
)


@pytest.fixture
def healthy() -> Machine:
    rates = [("fp32", 1, 100.0), ("fp32", 64, 5000.0), ("bf16", 1, 200.0), ("bf16", 64, 9000.0)]
    folder = FolderSpeed(
        path="/scratch/me",
        filesystem="lustre",
        free_gib=1000.0,
        measured_by="a temporary file of 256 MB",
        write_mb_per_second=900.0,
        read_mb_per_second=1500.0,
        cached_mb_per_second=9000.0,
    )
    return Machine(
        measured="2026-01-31T12:00:00+00:00",
        seconds=20.0,
        host="n1",
        system="Linux",
        processor=Processor(
            name="AMD EPYC 9334",
            instructions="AVX512",
            cpus=128,
            cores=64,
            usable_cpus=128,
            usable_cores=64,
            affinity="0-127",
            quota_cores=None,
            torch_threads=64,
            omp_num_threads=None,
            numa_nodes=2,
            l1d_kib=32,
            l2_kib=1024,
            l3_kib=32768,
            load_average=0.1,
        ),
        memory=Memory(
            total_gib=256.0,
            available_gib=250.0,
            limit_gib=None,
            shm_total_mib=128_000.0,
            shm_free_mib=127_000.0,
            huge_pages="madvise",
        ),
        accelerators=(),
        software=Software(
            versions={"python": "3.11.7", "torch": "2.13.0"},
            schedulers=(Scheduler(name="SLURM", program="/usr/bin/srun", job=None),),
            mpi=(MpiProgram(program="/usr/bin/mpirun", version="mpirun (Open MPI) 4.1.4"),),
            mpi4py="not installed",
        ),
        others_cores=0.02,
        gemm=tuple(
            GemmRate(dtype=dtype, threads=threads, size=2048, repeats=7, best_gflops=rate, median_gflops=rate)
            for dtype, threads, rate in rates
        ),
        copy=(CopyRate(threads=1, megabytes=128, best_gb_per_second=20.0, median_gb_per_second=19.0),),
        fabrics=(
            FabricCheck(
                name="torch",
                ranks=2,
                reason=None,
                times=(AllReduceTime(bytes=4096, median_seconds=1e-4, gb_per_second=0.041),),
            ),
        ),
        data_folder=folder,
        temporary_folder=folder,
    )
