"""The words of nearcast as frozen values. Nothing here decides, reads or writes."""
