"""Workers beside each other: ours and BullMQ's, as their users start them."""
