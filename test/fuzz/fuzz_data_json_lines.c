/* fuzz_data_json_lines.c - JSON lines. The first byte picks the slots. */
#include "fuzz_data.h"
#include "data/format/json_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_named(FLEET_JSON_LINES, fl_parse_json_lines, data, size);
    return 0;
}
