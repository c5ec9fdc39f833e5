/* rows_save.c - K1: a checkpoint of a table of 1 GB (R4's model at dimension 9,
 * Adagrad: 72 bytes and a key a row) over writing as many bytes to the same
 * device and nothing else: blocks of 4 MB past the page cache, as dd
 * oflag=direct writes, then flushed, as a checkpoint is.
 *
 *   rows_save [ROWS]    FLEET_BENCH_COLD=FOLDER: where it is saved (/var/tmp)
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "rows.h"

enum { ROWS = 13000000, ROUNDS = 3 };
enum { BLOCK = 4 << 20, ALIGNED = 4096 };

static char folder[200], file[200];
static double saved_bytes;

static int count_bytes(const char *path, const struct stat *s, int type,
                       struct FTW *at)
{
    (void)path, (void)at;
    if (type == FTW_F)
        saved_bytes += (double)s->st_size;
    return 0;
}

static int remove_one(const char *path, const struct stat *s, int type,
                      struct FTW *at)
{
    (void)s, (void)type, (void)at;
    return remove(path);
}

static double save_seconds(const bench *b)
{
    double began = now(), took;

    must(fleet_save_persistables(b->f, folder) == FLEET_OK, fleet_last_error());
    took = now() - began;
    saved_bytes = 0;
    nftw(folder, count_bytes, 8, FTW_PHYS);
    nftw(folder, remove_one, 8, FTW_PHYS | FTW_DEPTH);
    return took;
}

/* As many bytes, in whole blocks. */
static double write_seconds(char *block)
{
    long n = (long)(saved_bytes / BLOCK);
    double began = now(), took;
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);

    must(fd >= 0, "the file system has no O_DIRECT: FLEET_BENCH_COLD=FOLDER");
    for (long i = 0; i < n; i++)
        must(write(fd, block, BLOCK) == BLOCK, "cannot write");
    must(fdatasync(fd) == 0, "cannot flush");
    took = (now() - began) * saved_bytes / ((double)n * BLOCK);
    close(fd);
    unlink(file);
    return took;
}

int main(int argc, char **argv)
{
    static bench b = {.o = BENCH_DEFAULTS};
    const char *where = getenv("FLEET_BENCH_COLD");
    double ours[ROUNDS], peer[ROUNDS], mb;
    void *block = NULL;

    where = where ? where : "/var/tmp";
    snprintf(folder, sizeof folder, "%s/fleet-save.%d", where, getpid());
    snprintf(file, sizeof file, "%s/fleet-save.%d.raw", where, getpid());
    must(posix_memalign(&block, ALIGNED, BLOCK) == 0, "no memory");
    for (int i = 0; i < BLOCK / 4; i++) /* nothing that compresses */
        ((uint32_t *)block)[i] = (uint32_t)i * 2654435761u;
    b.o.threads = 2;
    b.o.rows = argc > 1 && atol(argv[1]) > 0 ? atol(argv[1]) : ROWS;
    open_bench(&b);
    step(&b); /* the store is there */
    make_all_rows(&b);
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = save_seconds(&b);
        peer[i] = write_seconds(block);
    }
    qsort(ours, ROUNDS, sizeof *ours, ascending);
    qsort(peer, ROUNDS, sizeof *peer, ascending);
    mb = saved_bytes / 1e6;
    printf("{\"id\": \"K1\", \"ratio\": %.3f, \"floor\": 0.6, \"goal\": 0.85, "
           "\"ours\": %.0f, \"peer\": %.0f, \"unit\": \"MB/s\", "
           "\"peer_name\": \"as many bytes written past the page cache\", "
           "\"rounds\": %d, \"mb\": %.0f}\n",
           peer[ROUNDS / 2] / ours[ROUNDS / 2], mb / ours[ROUNDS / 2],
           mb / peer[ROUNDS / 2], ROUNDS, mb);
    close_bench(&b);
    free(block);
    return 0;
}
