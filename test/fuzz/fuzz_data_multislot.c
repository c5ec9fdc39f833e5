/* fuzz_data_multislot.c - MultiSlot lines. The first byte picks the slots. */
#include "fuzz_data.h"
#include "data/format/multislot.h"

static const fleet_slot slots[] = {
    {.name = "label"},
    {.name = "a", .dtype = FLEET_INT64, .dim = 1},
    {.name = "b", .dtype = FLEET_INT64, .dim = -1},
    {.name = "c", .dtype = FLEET_INT64, .dim = 1},
    {.name = "dense", .dim = 3},
    {.name = "tags", .dim = -1},
    {.name = "d", .dtype = FLEET_INT64, .dim = 2},
    {.name = "e", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"fuzz"};
    fl_stream_spec spec = {
        .format = FLEET_MULTISLOT, .files = files, .n_file = 1};
    char *text;

    if (size == 0)
        return 0;
    spec.slots = slots + data[0] % 8;
    spec.n_slot = 1 + data[0] / 8 % (8 - data[0] % 8);
    text = fuzz_pad(data + 1, size - 1);
    fuzz_parse(&spec, fl_parse_multislot, text, size - 1, NULL);
    fuzz_unpad(text);
    return 0;
}
