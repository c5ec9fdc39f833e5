/* data_d5.c - D5: libsvm text from a file in the page cache to batches, one
 * reader thread, over scikit-learn's load_svmlight_file() of the same file, which
 * has one thread, too; MB/s. Run it in the
 * repository's root; FLEET_SKLEARN names a Python that has scikit-learn. */
#include "data_files.h"

enum { ROUNDS = 5 };

static char path[] = "/tmp/fleet-bench-d5.XXXXXX";

static const char *python(void)
{
    static char found[1000];
    const char *named = getenv("FLEET_SKLEARN"), *venvs, *home;

    if (named && *named)
        return named;
    venvs = getenv("FLEET_BENCH_VENVS");
    home = getenv("HOME");
    if (venvs)
        snprintf(found, sizeof found, "%s/sklearn/bin/python", venvs);
    else
        snprintf(found, sizeof found,
                 "%s/.cache/libfleet/venvs/sklearn/bin/python",
                 home ? home : "");
    return found;
}

/* What it prints: seconds of the call alone. */
static double run_peer(void)
{
    char command[1500], line[100] = "";
    FILE *f;

    snprintf(command, sizeof command,
             "'%s' -c 'import time; from sklearn.datasets import "
             "load_svmlight_file as load; t = time.time(); load(\"%s\"); "
             "print(time.time() - t)' 2>/dev/null",
             python(), path);
    f = popen(command, "r");
    bench_must(f != NULL, "popen");
    if (!fgets(line, sizeof line, f))
        line[0] = 0;
    pclose(f);
    return atof(line);
}

static fl_stream_spec spec_of(const char *const *files, const fleet_slot *slots)
{
    return (fl_stream_spec){.format = FLEET_LIBSVM,
                            .slots = slots,
                            .n_slot = 2,
                            .batch_size = FILE_BATCH,
                            .n_thread = 1,
                            .files = files,
                            .n_file = 1,
                            .share_count = 1};
}

int main(void)
{
    static const fleet_slot slots[] = {
        {.name = "label"},
        {.name = "x", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};
    bench_text t = bench_libsvm();
    const char *const files[] = {path};
    fl_stream_spec spec = spec_of(files, slots);
    double ours[ROUNDS], peer[ROUNDS];

    bench_write(path, &t);
    bench_pass(&spec);
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = bench_pass(&spec);
        peer[i] = run_peer();
    }
    unlink(path);
    if (peer[0] > 0)
        bench_print("D5", 5, 10, "MB/s", "scikit-learn's load_svmlight_file",
                    (double)(t.end - t.text) / 1e6, ours, peer, ROUNDS);
    else
        printf("{\"id\":\"D5\",\"ratio\":null,\"floor\":5,\"goal\":10,"
               "\"ours\":%.6g,\"unit\":\"MB/s\",\"peer_name\":\"scikit-learn's "
               "load_svmlight_file\",\"absent\":\"%s cannot 'import sklearn': "
               "bench/peers sklearn\"}\n",
               (double)(t.end - t.text) / 1e6 / bench_median(ours, ROUNDS),
               python());
    free(t.memory);
    return 0;
}
