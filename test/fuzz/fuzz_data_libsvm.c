/* fuzz_data_libsvm.c - libsvm's lines. The first byte picks the slots. */
#include "fuzz_data.h"
#include "data/format/libsvm.h"

static const fleet_slot slots[][3] = {
    {{.name = "label"},
     {.name = "qid", .dtype = FLEET_INT64},
     {.name = "x", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}},
    {{.name = "label", .dtype = FLEET_INT64},
     {.name = "qid", .dtype = FLEET_INT64},
     {.name = "x", .dim = 5}},
    {{.name = "label"},
     {.name = "qid", .dtype = FLEET_INT64},
     {.name = "x", .dtype = FLEET_INT64, .dim = -1}}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"fuzz"};
    fleet_slot used[3];
    fl_stream_spec spec = {
        .format = FLEET_LIBSVM, .files = files, .n_file = 1, .slots = used};
    char *text;

    if (size == 0)
        return 0;
    for (int i = 0; i < 3; i++) /* with a label, a query, or without */
        if (i == 2 || data[0] >> i & 1)
            used[spec.n_slot++] = slots[data[0] / 4 % 3][i];
    text = fuzz_pad(data + 1, size - 1);
    fuzz_parse(&spec, fl_parse_libsvm, text, size - 1, NULL);
    fuzz_unpad(text);
    return 0;
}
