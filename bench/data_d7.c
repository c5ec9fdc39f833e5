/* data_d7.c - D7: TFRecord files of tf.Example in the page cache to batches,
 * one reader thread, over protobuf-c's unpacking of the same examples in
 * memory, whose own memory is of an arena: neither checksums nor values are
 * looked at; MB/s. */
#include "data_files.h"

#if HAVE_PROTOBUF_C
#include "example.pb-c.h"
#endif

enum { ROUNDS = 5 };

static fleet_slot slots[2 + BENCH_IDS];
static char names[BENCH_IDS][8];

static void make_slots(void)
{
    slots[0] = (fleet_slot){.name = "label"};
    slots[1] = (fleet_slot){.name = "dense_input", .dim = BENCH_DENSE};
    for (int i = 0; i < BENCH_IDS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i + 1);
        slots[2 + i] = (fleet_slot){.name = names[i], .dtype = FLEET_INT64};
    }
}

#if HAVE_PROTOBUF_C

enum { ARENA = 1 << 20 };

typedef struct arena {
    char *memory;
    size_t used;
} arena;

static void *take(void *of, size_t size)
{
    arena *a = of;
    char *at = a->memory + a->used;

    a->used += (size + 15) / 16 * 16;
    bench_must(a->used <= ARENA, "an arena");
    return at;
}

static void leave(void *of, void *memory)
{
    (void)of;
    (void)memory;
}

/* Seconds, or 0. */
static double run_peer(const bench_text *t)
{
    arena a = {.memory = malloc(ARENA)};
    ProtobufCAllocator memory = {take, leave, &a};
    double begin = now();
    int64_t n = 0;

    for (const char *at = t->text; at < t->end; n++) {
        const Tensorflow__Example *e;
        uint64_t size;

        memcpy(&size, at, 8);
        a.used = 0;
        e = tensorflow__example__unpack(&memory, size,
                                        (const uint8_t *)at + 12);
        bench_must(e && e->features->n_feature == 2 + BENCH_IDS, "unpack");
        at += 16 + size;
    }
    bench_must(n == BENCH_RECORDS, "some records are missing");
    free(a.memory);
    return now() - begin;
}

#else

static double run_peer(const bench_text *t)
{
    (void)t;
    return 0;
}

#endif

int main(void)
{
    char path[] = "/tmp/fleet-bench-d7.XXXXXX";
    const char *const files[] = {path};
    bench_text t = bench_tfrecord();
    fl_stream_spec spec = {.format = FLEET_TFRECORD,
                           .slots = slots,
                           .n_slot = 2 + BENCH_IDS,
                           .batch_size = FILE_BATCH,
                           .n_thread = 1,
                           .files = files,
                           .n_file = 1,
                           .share_count = 1};
    const double mb = (double)(t.end - t.text) / 1e6;
    double ours[ROUNDS], peer[ROUNDS];

    make_slots();
    bench_write(path, &t);
    bench_pass(&spec);
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = bench_pass(&spec);
        peer[i] = run_peer(&t);
    }
    unlink(path);
    if (peer[0] > 0)
        bench_print("D7", 2.2, 3, "MB/s", "protobuf-c's unpack", mb, ours, peer,
                    ROUNDS);
    else
        printf("{\"id\":\"D7\",\"ratio\":null,\"floor\":2.2,\"goal\":3,"
               "\"ours\":%.6g,\"unit\":\"MB/s\",\"peer_name\":\"protobuf-c's "
               "unpack\",\"absent\":\"libprotobuf-c-dev or "
               "protobuf-c-compiler\"}\n",
               mb / bench_median(ours, ROUNDS));
    free(t.memory);
    return 0;
}
