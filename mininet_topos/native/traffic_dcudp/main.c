// SPDX-License-Identifier: Apache-2.0
// The lab's long and planned flows over DCUDP, with the records of weir-traffic.
//
//   weir-traffic-dcudp sink   --host NAME --port P --key-file FILE     receives and discards
//   weir-traffic-dcudp source --host NAME --port P --key-file FILE --to ADDRESS
//   weir-traffic-dcudp flows  --host NAME --port P --key-file FILE --plan FILE --start-ns T
//
// source and flows need --link-bps (capacity of the bottleneck: C of the paper) and --rate-bps (what the application of
// a flow offers), both in bits of UDP payload. Every role takes --sample-ms.
#include "roles.h"

int main(int argc, char **argv)
{
	static const struct role roles[] = {{"sink", run_sink}, {"source", run_source}, {"flows", run_flows}};
	return run_role(argc, argv, roles, sizeof roles / sizeof *roles);
}
