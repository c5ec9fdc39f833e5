/* data_d8.c - D8: a Parquet file of 13 doubles and 26 integers in the page cache
 * to batches, one reader thread, over pyarrow's reading of the same file to
 * arrays of NumPy by one thread; thousands of rows for a second of the
 * processor. The file has checksums, which pyarrow does not look at. pyarrow's
 * memory is warm: it is the median of its rounds but the first; D8-cold: of a
 * new process, as a job begins, the first. Run it in the repository's root after
 * `make arrow`; FLEET_ARROW names a folder with pyarrow and NumPy. */
#include <time.h>

#include "data_files.h"

#include "data/format/parquet_table.h"
#include "runtime/device/plugin.h"

enum { ROUNDS = 5, GROUP = 50000, COLUMNS = 1 + BENCH_DENSE + BENCH_IDS };

static char path[] = "/tmp/fleet-bench-d8.XXXXXX";
static char names[COLUMNS][8];
static const char *name[COLUMNS];
static fleet_slot slots[COLUMNS];
static const fleet_transform as_they_are[] = {FLEET_TRANSFORM_NONE};

static void make_slots(void)
{
    for (int i = 0; i < COLUMNS; i++) {
        snprintf(names[i], sizeof names[i], "c%d", i);
        name[i] = names[i];
        slots[i] =
            (fleet_slot){.name = names[i],
                         .dtype = i > BENCH_DENSE ? FLEET_INT64 : FLEET_FLOAT32,
                         .columns = &name[i],
                         .n_column = 1,
                         .transforms = as_they_are,
                         .n_transform = 1};
    }
}

/* Groups of the same bytes: a label, reals, ids below a million. */
static void write_file(const fl_parquet_table *t)
{
    static uint64_t values[COLUMNS][GROUP];
    fl_parquet_column column[COLUMNS];
    fl_parquet_piece piece[COLUMNS];
    fl_parquet_writer *w;
    uint64_t state = 5;

    for (int i = 0; i < COLUMNS; i++) {
        column[i] = (fl_parquet_column){
            name[i],
            i > 0 && i <= BENCH_DENSE ? FL_PARQUET_REAL : FL_PARQUET_INT, 0};
        piece[i] = (fl_parquet_piece){.n = GROUP, .values = values[i]};
    }
    close(mkstemp(path));
    bench_must(t->create(path, column, COLUMNS, &w) == FLEET_OK, "create");
    for (int g = 0; g < BENCH_RECORDS / GROUP; g++) {
        for (int i = 0; i < COLUMNS; i++)
            for (int r = 0; r < GROUP; r++) {
                const uint64_t x = next_random(&state);
                const double real = (double)(x >> 11) * 0x1p-53;

                values[i][r] = i == 0 ? x % 4 == 0 : x % 1000000;
                if (i > 0 && i <= BENCH_DENSE)
                    memcpy(&values[i][r], &real, sizeof real);
            }
        bench_must(t->write(w, GROUP, piece) == FLEET_OK, "write");
    }
    bench_must(t->finish(w) == FLEET_OK, "finish");
    t->abandon(w);
}

/* Of the processor, as the peer's: of this thread and the reader's. */
static double pass_time(const fl_stream_spec *spec)
{
    const clock_t begin = clock();

    bench_pass(spec);
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

/* Its seconds, the first round's and the best one's; 0: it is absent. */
static void run_peer(double *cold, double *warm)
{
    const char *at = getenv("FLEET_ARROW"), *home = getenv("HOME");
    char command[1500], line[100] = "";
    FILE *f;

    snprintf(command, sizeof command,
             "PYTHONPATH='%s%s' python3 bench/data_arrow.py %s 2>/dev/null",
             at     ? at
             : home ? home
                    : "",
             at ? "" : "/.cache/libfleet/pyarrow-26.0", path);
    f = popen(command, "r");
    bench_must(f != NULL, "popen");
    *cold = *warm = 0;
    if (!fgets(line, sizeof line, f) ||
        sscanf(line, "%lf %lf", cold, warm) != 2)
        *cold = *warm = 0;
    pclose(f);
}

static void report(const char *id, double floor, double goal, double *ours,
                   double *peer)
{
    if (peer[0] > 0)
        bench_print(id, floor, goal, "thousand rows/s",
                    "pyarrow to arrays of NumPy, one thread",
                    BENCH_RECORDS / 1e3, ours, peer, ROUNDS);
    else
        printf("{\"id\":\"%s\",\"ratio\":null,\"floor\":%g,\"goal\":%g,"
               "\"ours\":%.6g,\"unit\":\"thousand rows/s\",\"peer_name\":"
               "\"pyarrow to arrays of NumPy, one thread\",\"absent\":"
               "\"python3 cannot 'import pyarrow': make arrow\"}\n",
               id, floor, goal,
               BENCH_RECORDS / 1e3 / bench_median(ours, ROUNDS));
}

int main(void)
{
    const char *const files[] = {path};
    const fl_stream_spec spec = {.format = FLEET_PARQUET,
                                 .slots = slots,
                                 .n_slot = COLUMNS,
                                 .batch_size = FILE_BATCH,
                                 .n_thread = 1,
                                 .files = files,
                                 .n_file = 1,
                                 .share_count = 1};
    double ours[ROUNDS], again[ROUNDS], cold[ROUNDS], warm[ROUNDS];
    const fl_plugin *plugin;

    make_slots();
    bench_must(fl_plugin_open("arrow", &plugin) == FLEET_OK, "arrow");
    write_file(plugin->parquet);
    bench_pass(&spec);
    for (int i = 0; i < ROUNDS; i++) {
        again[i] = ours[i] = pass_time(&spec);
        run_peer(&cold[i], &warm[i]);
    }
    unlink(path);
    report("D8", 1, 1.5, ours, warm);
    report("D8-cold", 1, 2, again, cold);
    return 0;
}
