/* fuzz_data_csv.c - csv lines. The first byte picks separator and header. */
#include "fuzz_data.h"

#include "data/format/csv.h"

static const char *const c0[] = {"0"}, *const c1[] = {"1"},
                         *const many[] = {"0", "2", "1"},
                         *const texts[] = {"yes", "", "\"", ">50K"};
static const fleet_transform hash = FLEET_HASH, equals = FLEET_EQUALS,
                             none = FLEET_TRANSFORM_NONE,
                             standardize = FLEET_LOG1P_STANDARDIZE;
static const fleet_slot slots[] = {
    {.name = "x", .columns = c0, .n_column = 1},
    {.name = "id",
     .dtype = FLEET_INT64,
     .columns = c1,
     .n_column = 1,
     .transforms = &none,
     .n_transform = 1},
    {.name = "h",
     .dtype = FLEET_INT64,
     .columns = c1,
     .n_column = 1,
     .transforms = &hash,
     .n_transform = 1},
    {.name = "e",
     .columns = c1,
     .n_column = 1,
     .transforms = &equals,
     .n_transform = 1,
     .equals = texts,
     .n_equals = 4},
    {.name = "all",
     .dtype = FLEET_INT64,
     .dim = -1,
     .columns = many,
     .n_column = 3,
     .transforms = &hash,
     .n_transform = 1},
    {.name = "numbers", .dim = -1, .columns = many, .n_column = 3},
    {.name = "s",
     .columns = c0,
     .n_column = 1,
     .transforms = &standardize,
     .n_transform = 1}};

static fleet_status read_places(fl_parser *p, fl_scratch *s, fl_lines *l)
{
    fl_csv_places(p, 0);
    if (!p->spec->header || l->n == 0)
        return FLEET_OK;
    FL_TRY(fl_csv_header(p, &s->cells, &l->line[0]));
    memmove(l->line, l->line + 1, --l->n * sizeof *l->line);
    return FLEET_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"fuzz"};
    double mean = 1, deviation = 2;
    const fl_statistics statistics = {1, &mean, &deviation};
    fl_stream_spec spec = {.format = FLEET_CSV,
                           .files = files,
                           .n_file = 1,
                           .missing = "?",
                           .statistics = &statistics};
    char *text;

    if (size == 0)
        return 0;
    spec.separator = ",;\t |"[data[0] % 5];
    spec.header = data[0] / 5 % 2;
    spec.slots = slots + data[0] / 10 % 7;
    spec.n_slot = data[0] >= 140 ? 7 - data[0] / 10 % 7 : 1;
    text = fuzz_pad(data + 1, size - 1);
    fuzz_parse(&spec, fl_parse_csv, text, size - 1, read_places);
    fuzz_parse(&spec, fl_parse_statistics, text, size - 1, read_places);
    fuzz_unpad(text);
    return 0;
}
