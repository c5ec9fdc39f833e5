/* data_d3.c - D3: Criteo's lines from a file in the page cache to batches of
 * values, with one reader thread, over a Python line generator on its own core,
 * in lines per second. Run it in the repository's root. */
#include "data/format/formats.h"
#include "data_bench.h"

#include <unistd.h>

#include "data/stream.h"

enum { BATCH = 512, ROUNDS = 5, PYTHON_LINES = 50000 };

static char path[] = "/tmp/fleet-bench-d3.XXXXXX";

static void write_file(const bench_text *t)
{
    int fd = mkstemp(path);
    size_t size = (size_t)(t->end - t->text);

    bench_must(fd >= 0, "mkstemp");
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, t->text + done, size - done);

        bench_must(n > 0, "write");
        done += (size_t)n;
    }
    close(fd);
}

static double run_ours(void)
{
    const char *const files[] = {path};
    fl_stream_spec spec = {.format = FLEET_CRITEO,
                           .batch_size = BATCH,
                           .n_thread = 1,
                           .files = files,
                           .n_file = 1,
                           .share_count = 1};
    double begin = now();
    fl_stream *stream = NULL;
    fl_batch *batch;
    int64_t rows = 0;

    bench_must(fl_format_own_slots(FLEET_CRITEO, NULL, &spec.slots,
                                   &spec.n_slot) == FLEET_OK &&
                   fl_stream_open(&stream, &spec) == FLEET_OK,
               "open");
    while (fl_stream_next(stream, &batch) == FLEET_OK) {
        rows += batch->rows;
        fl_stream_release(stream, batch);
    }
    fl_stream_close(stream);
    fl_format_free_own_slots(spec.slots);
    bench_must(rows == BENCH_RECORDS, "some lines are missing");
    return (now() - begin) / BENCH_RECORDS;
}

/* Seconds of the generator over the first `lines`, with its start. */
static double python_seconds(int lines)
{
    char command[300];
    double begin;

    snprintf(command, sizeof command,
             "head -n %d %s | /usr/bin/python3 bench/data_pygen.py > /dev/null",
             lines, path);
    begin = now();
    bench_must(system(command) == 0, command);
    return now() - begin;
}

/* Its start is not counted: ours has none. */
static double run_python(void)
{
    double start = python_seconds(0);

    return (python_seconds(PYTHON_LINES) - start) / PYTHON_LINES;
}

int main(void)
{
    bench_text t = bench_criteo(0);
    double ours[ROUNDS], peer[ROUNDS];

    write_file(&t);
    run_ours();
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = run_ours();
        peer[i] = run_python();
    }
    unlink(path);
    bench_print("D3", 30, 80, "lines/s", "Python line generator", 1, ours, peer,
                ROUNDS);
    free(t.memory);
    return 0;
}
