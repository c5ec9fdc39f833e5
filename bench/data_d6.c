/* data_d6.c - D6: passes over files' caches over passes over their text, one
 * reader thread, files and caches in the page cache, lines/s; one line for each
 * format. */
#include "data/format/formats.h"
#include "data_files.h"

enum { ROUNDS = 9 };

typedef struct input {
    const char *id;
    fleet_format format;
    double floor, goal;
    bench_text text;
} input;

static fleet_slot slots[2 + BENCH_IDS];
static char names[BENCH_IDS][8];

static void make_slots(fleet_format format)
{
    slots[0] = (fleet_slot){.name = "label"};
    slots[1] = (fleet_slot){.name = "dense_input", .dim = BENCH_DENSE};
    for (int i = 0; i < BENCH_IDS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i + 1);
        slots[2 + i] = (fleet_slot){.name = names[i], .dtype = FLEET_INT64};
    }
    if (format == FLEET_LIBSVM)
        slots[1] = (fleet_slot){
            .name = "features", .dtype = FLEET_INT64, .dim = -1, .weighted = 1};
}

static void measure(const input *in)
{
    char path[] = "/tmp/fleet-bench-d6.XXXXXX", cache[60];
    const char *const files[] = {path};
    fl_cache_state state = {false};
    fl_stream_spec spec = {.format = in->format,
                           .slots = slots,
                           .n_slot =
                               in->format == FLEET_LIBSVM ? 2 : 2 + BENCH_IDS,
                           .batch_size = FILE_BATCH,
                           .n_thread = 1,
                           .files = files,
                           .n_file = 1,
                           .share_count = 1};
    double ours[ROUNDS], text[ROUNDS];

    make_slots(in->format);
    if (in->format == FLEET_CRITEO)
        bench_must(fl_format_own_slots(FLEET_CRITEO, NULL, &spec.slots,
                                       &spec.n_slot) == FLEET_OK,
                   "slots");
    bench_write(path, &in->text);
    snprintf(cache, sizeof cache, "%s.fleetcache", path);
    bench_pass(&spec);
    sleep(3); /* until the file's times tell it from any other */
    spec.cache = &state;
    bench_pass(&spec);
    for (int i = 0; i < ROUNDS; i++) {
        spec.cache = &state;
        ours[i] = bench_pass(&spec);
        spec.cache = NULL;
        text[i] = bench_pass(&spec);
    }
    bench_must(!state.is_off, "there is no cache");
    unlink(path);
    unlink(cache);
    if (in->format == FLEET_CRITEO)
        fl_format_free_own_slots(spec.slots);
    free(state.whole);
    bench_print(in->id, in->floor, in->goal, "lines/s", "parsing",
                BENCH_RECORDS, ours, text, ROUNDS);
}

int main(void)
{
    const input in[] = {
        {"D6", FLEET_MULTISLOT, 5, 7, bench_multislot()},
        {"D6-criteo", FLEET_CRITEO, 1.3, 2, bench_criteo(0)},
        {"D6-libsvm", FLEET_LIBSVM, 5, 7, bench_libsvm()},
        {"D6-slots", FLEET_SLOT_TEXT, 5, 7, bench_named(false)},
        {"D6-json", FLEET_JSON_LINES, 5, 7, bench_named(true)},
        {"D6-tfrecord", FLEET_TFRECORD, 1.5, 2, bench_tfrecord()}};

    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        measure(&in[i]);
        free(in[i].text.memory);
    }
    return 0;
}
