/* fuzz_data_criteo.c - lines of Criteo's log. */
#include "fuzz_data.h"
#include "data/format/criteo.h"
#include "data/format/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const files[] = {"fuzz"};
    static fl_stream_spec spec = {
        .format = FLEET_CRITEO, .files = files, .n_file = 1};
    char *text = fuzz_pad(data, size);

    if (!spec.slots)
        fuzz_must(fl_format_own_slots(FLEET_CRITEO, NULL, &spec.slots,
                                      &spec.n_slot) == FLEET_OK,
                  "slots");
    fuzz_parse(&spec, fl_parse_criteo, text, size, NULL);
    fuzz_unpad(text);
    return 0;
}
