/* png_file_absent.c - in place of png_file.c where libpng is not. */
#include "png_file.h"

fleet_status png_file_write(const canvas *c, const char *path)
{
    (void)c;
    return fl_fail(
        FLEET_EUNSUPPORTED,
        "%s cannot be made: this fleet-plot was built without libpng "
        "(Debian: libpng-dev); without -o curves are drawn as text",
        path);
}
