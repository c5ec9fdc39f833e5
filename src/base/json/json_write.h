/* json_write.h - JSON that is made, changed and written. NULL in is NULL out:
 * check the result of the last call. */
#pragma once

#include "base/json/json.h"

fl_json *fl_json_object(void);
fl_json *fl_json_array(void);
fleet_status fl_json_put(fl_json *object, const char *key, fl_json *value);
fleet_status fl_json_put_array(fl_json *object, const char *key,
                               fl_json **array); /* a new one, in it */
fleet_status fl_json_append(fl_json *array, fl_json *value);
/* What the path leads to is the value from now on: "epochs", "slots[2].dim".
 * Objects on the way are made where there are none; arrays stay as long as they
 * are. FLEET_ECONFIG: it leads nowhere, and nothing has changed. The value goes
 * in any case. */
fleet_status fl_json_set(fl_json *root, const char *path, fl_json *value);
fl_json *fl_json_string(const char *text);
fl_json *fl_json_bool(bool value);
fl_json *fl_json_int(int64_t value);               /* exact in 64 bits */
fl_json *fl_json_hex(uint64_t value);              /* "16 hex digits" */
fl_json *fl_json_double(double value, int digits); /* null if not finite */
/* n words of `size` bytes each, as hex digits. */
fl_json *fl_json_words(const void *data, int64_t n, size_t size);

fl_json *fl_json_copy(const fl_json *json);

/* The text, for fl_free(); NULL without memory. */
char *fl_json_print(const fl_json *json, bool pretty);
