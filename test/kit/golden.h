/* golden.h - texts against those of the same name in test/golden.
 *
 * FLEET_UPDATE_GOLDEN=1 writes them anew: read the difference then.
 */
#pragma once

void golden_check(const char *name, const char *got);

/* That text, for fl_free(). */
char *golden_read(const char *name);
