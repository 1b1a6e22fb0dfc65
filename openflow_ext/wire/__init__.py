"""The OpenFlow extension on the wire: frozen dataclasses to bytes and back. Import names from here.

Messages include the OpenFlow header; actions and OXM fields are whole as well. Encoding and decoding are
strict about lengths and values. Padding is zero when sent and ignored when received.
``docs/wire-format.md`` shows each layout with an example.

    WireError           cannot be decoded or encoded; names the field
      Truncated         the bytes end before the field does
      BadLength         a length field disagrees with the number of bytes, or bytes are left over
      BadValue          a field cannot have this value
      UnknownType       a version, message, multipart, action or field type that the extension lacks

The formats of OpenFlow 1.3 and 1.5 differ in ofp_port only. Not implemented: OpenFlow 1.4, and TCP_WINDOW
in a set-field action (MOD_WINDOW and SET_WINDOW change a window).

Each module's ``__all__`` lists its part of this interface. Other names are internal to the package.
"""

from openflow_ext.wire.actions import *
from openflow_ext.wire.codec import *
from openflow_ext.wire.errors import *
from openflow_ext.wire.flows import *
from openflow_ext.wire.messages import *
from openflow_ext.wire.openflow import *
from openflow_ext.wire.port_counters import *
from openflow_ext.wire.ports import *
from openflow_ext.wire.types import *
