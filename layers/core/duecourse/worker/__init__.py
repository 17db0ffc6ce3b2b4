"""The worker: functions of your own, run in processes of your own, with no Lambda."""
