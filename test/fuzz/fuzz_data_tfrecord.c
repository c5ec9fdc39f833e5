/* fuzz_data_tfrecord.c - the first byte picks the slots, and whether the rest
 * is a record, whose checksum is made right, or a file of them. */
#include "fuzz_data.h"

#include "base/crc32c.h"
#include "data/format/tfrecord.h"
#include "data/format/tfrecord_reader.h"
#include "data/stream.h"

static const fleet_slot slots[] = {
    {.name = "a", .required = 1},
    {.name = "b", .dtype = FLEET_INT64, .dim = -1},
    {.name = "c", .dim = 2},
    {.name = "a_longer_name", .dtype = FLEET_INT64},
    {.name = "e", .dim = -1}};
static const char *const files[] = {"fuzz"};
enum { N_SLOT = sizeof slots / sizeof *slots };

static const char *record;
static size_t record_size;

/* All of it is one line, whatever newlines it has. */
static fleet_status take_record(fl_parser *p, fl_scratch *s, fl_lines *l)
{
    (void)p;
    (void)s;
    FL_TRY(fl_grow(&l->line, &l->capacity, 1, sizeof *l->line));
    l->n = 1;
    l->line[0] =
        (fl_line){.text = record, .size = (uint32_t)record_size, .number = 1};
    return FLEET_OK;
}

static void parse_record(const fl_stream_spec *spec, const uint8_t *data,
                         size_t size)
{
    const uint32_t sum = fl_crc32c_masked(data, size);
    char *bytes = malloc(size + FL_TFRECORD_SUM), *text;

    fuzz_must(bytes != NULL, "malloc");
    if (size > 0)
        memcpy(bytes, data, size);
    memcpy(bytes + size, &sum, FL_TFRECORD_SUM);
    record_size = size + FL_TFRECORD_SUM;
    record = text = fuzz_pad(bytes, record_size);
    fuzz_parse(spec, fl_parse_tfrecord, text, 0, take_record);
    fuzz_unpad(text);
    free(bytes);
}

static void read_file(fl_stream_spec spec, const uint8_t *data, size_t size)
{
    fleet_status status;
    fl_stream *s;
    fl_batch *b;

    spec.batch_size = 3;
    spec.n_thread = 1;
    spec.share_count = 1;
    spec.text = (const char *)data;
    spec.text_size = size;
    status = fl_stream_open(&s, &spec);
    if (status == FLEET_OK) {
        while ((status = fl_stream_next(s, &b)) == FLEET_OK)
            fl_stream_release(s, b);
        fl_stream_close(s);
    }
    fuzz_must(status == FLEET_EEND || status == FLEET_EFORMAT ||
                  status == FLEET_ECORRUPT,
              "status");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fl_stream_spec spec = {
        .format = FLEET_TFRECORD, .files = files, .n_file = 1};

    if (size == 0)
        return 0;
    spec.slots = slots + data[0] % N_SLOT;
    spec.n_slot = 1 + data[0] / N_SLOT % (N_SLOT - data[0] % N_SLOT);
    if (data[0] < 128)
        parse_record(&spec, data + 1, size - 1);
    else
        read_file(spec, data + 1, size - 1);
    return 0;
}
