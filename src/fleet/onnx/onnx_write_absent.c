/* onnx_write_absent.c - in place of onnx_write.c in a build without protobuf-c:
 * an export says what to install. */
#include "fleet/onnx/onnx_write.h"

fleet_status fl_onnx_can_write(void)
{
    return fl_fail(FLEET_EUNSUPPORTED,
                   "onnx: this libfleet was built without protobuf-c, which "
                   "writes the file (Debian: libprotobuf-c-dev "
                   "protobuf-c-compiler)");
}

fleet_status fl_onnx_write(fl_onnx *x, const char *path, bool external)
{
    (void)x;
    (void)path;
    (void)external;
    return fl_onnx_can_write();
}
