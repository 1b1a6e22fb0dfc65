// SPDX-License-Identifier: Apache-2.0
// The lab's long and planned flows over UDT (Debian's libudt), with the records of weir-traffic.
//
//   weir-traffic-udt sink   --host NAME --port P     receives and discards
//   weir-traffic-udt source --host NAME --port P --rate-bps R --to ADDRESS
//   weir-traffic-udt flows  --host NAME --port P --rate-bps R --plan FILE --start-ns T
//
// --rate-bps: what the application of a flow offers, in bits of UDP payload. Every role takes --sample-ms.
extern "C" {
#include "roles.h"
}

int main(int argc, char **argv)
{
	static const struct role roles[] = {{"sink", run_sink}, {"source", run_source}, {"flows", run_flows}};
	return run_role(argc, argv, roles, sizeof roles / sizeof *roles);
}
