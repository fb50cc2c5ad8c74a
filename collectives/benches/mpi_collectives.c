/* The plain loop that MpiComm is measured beside: what a C program gets from MPI, timed the same way.
 *
 *     mpicc -O2 -o mpi_collectives mpi_collectives.c
 *     mpirun -n 2 ./mpi_collectives [REPEATS [BYTES ...]]
 *
 * A line per collective and size: name, bytes, and in microseconds the median, the 95th percentile and the
 * minimum of a repeat's time, which is that of its slowest rank. The size is nccl-tests': the larger buffer of a
 * rank. A barrier precedes each repeat; the first 5 do not count.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 5 };

static int ranks;
static float *from, *into;

static void all_reduce(int count)
{
    MPI_Allreduce(from, into, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(int count)
{
    MPI_Allgather(from, count / ranks, MPI_FLOAT, into, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(int count)
{
    MPI_Reduce_scatter_block(from, into, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(int count)
{
    MPI_Bcast(into, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_to_all(int count)
{
    MPI_Alltoall(from, count / ranks, MPI_FLOAT, into, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*call)(int count);
} COLLECTIVES[] = {
    {"all_reduce", all_reduce},
    {"all_gather", all_gather},
    {"reduce_scatter", reduce_scatter},
    {"broadcast", broadcast},
    {"all_to_all", all_to_all},
};

static int ascending(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static void measure(int which, long bytes, int repeats, int rank)
{
    int count = (int)(bytes / (long)sizeof(float)) / ranks * ranks;
    double *times = malloc(sizeof(double) * (size_t)repeats);
    for (int repeat = -WARM_UP; repeat < repeats; repeat++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        COLLECTIVES[which].call(count);
        if (repeat >= 0)
            times[repeat] = MPI_Wtime() - begin;
    }
    if (which == 0 && count > 0 && into[count - 1] != (float)(ranks * (ranks + 1) / 2)) {
        fprintf(stderr, "all_reduce gave %g\n", into[count - 1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    void *mine = rank == 0 ? MPI_IN_PLACE : times;
    MPI_Reduce(mine, times, repeats, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(times, (size_t)repeats, sizeof(double), ascending);
        printf("%s %ld %.3f %.3f %.3f\n", COLLECTIVES[which].name, bytes, times[(repeats - 1) / 2] * 1e6,
               times[(repeats - 1) * 95 / 100] * 1e6, times[0] * 1e6);
        fflush(stdout);
    }
    free(times);
}

int main(int argc, char **argv)
{
    static const long sizes[] = {8, 1 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20};
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int repeats = argc > 1 ? atoi(argv[1]) : 20;
    int given = argc > 2 ? argc - 2 : (int)(sizeof sizes / sizeof *sizes);
    if (repeats < 1) {
        fprintf(stderr, "usage: %s [REPEATS [BYTES ...]]\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int size = 0; size < given; size++) {
        long bytes = argc > 2 ? atol(argv[2 + size]) : sizes[size];
        size_t room = bytes > 0 ? (size_t)bytes : 1;
        from = malloc(room);
        into = malloc(room);
        for (size_t index = 0; index < room / sizeof(float); index++) {
            from[index] = (float)(rank + 1);
            into[index] = 0;
        }
        for (int which = 0; which < (int)(sizeof COLLECTIVES / sizeof *COLLECTIVES); which++)
            measure(which, bytes, repeats, rank);
        free(from);
        free(into);
    }
    MPI_Finalize();
    return 0;
}
