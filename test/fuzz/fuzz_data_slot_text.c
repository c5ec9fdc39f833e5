/* fuzz_data_slot_text.c - slot text. The first byte picks the slots. */
#include "fuzz_data.h"
#include "data/format/slot_text.h"

static const fleet_slot slots[] = {
    {.name = "a", .required = 1},
    {.name = "b", .dtype = FLEET_INT64, .dim = -1},
    {.name = "c", .dim = 2},
    {.name = "d", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
    {.name = "a_longer_name", .dtype = FLEET_INT64},
    {.name = "e", .dim = -1}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"fuzz"};
    fl_stream_spec spec = {
        .format = FLEET_SLOT_TEXT, .files = files, .n_file = 1};
    char *text;

    if (size == 0)
        return 0;
    spec.slots = slots + data[0] % 6;
    spec.n_slot = 1 + data[0] / 6 % (6 - data[0] % 6);
    text = fuzz_pad(data + 1, size - 1);
    fuzz_parse(&spec, fl_parse_slot_text, text, size - 1, NULL);
    fuzz_unpad(text);
    return 0;
}
