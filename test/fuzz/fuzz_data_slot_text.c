/* fuzz_data_slot_text.c - slot text. The first byte picks the slots. */
#include "fuzz_data.h"
#include "data/format/slot_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_named(FLEET_SLOT_TEXT, fl_parse_slot_text, data, size);
    return 0;
}
